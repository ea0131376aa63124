"""How the embedded model's adapter was made. Nothing here is used when scoring.

`data` (lists and mined negatives), `tables` (frequencies, stems), `encode` and `features` (the frozen
encoder's part, done once), `head_stage` (the head alone), `joint_stage` (attention across and the upper
layers), `evaluate` and `metrics`. The model card says with which settings.
"""
