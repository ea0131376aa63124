"""How the embedded model's adapter was made: `data`, `features`, `train`, `evaluate`. Not used when scoring."""
