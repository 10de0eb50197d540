"""The departure study: what the released code of the paper does otherwise than its text."""
