"""`afterpass demo`: a small research agent's real findings, judged before your eyes."""
