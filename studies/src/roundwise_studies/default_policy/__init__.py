"""How the shipped policy is made and chosen."""
