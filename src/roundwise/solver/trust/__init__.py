"""What is known of an answer: its digits, bounds of its error, and whether A is singular."""
