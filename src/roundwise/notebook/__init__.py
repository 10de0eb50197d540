"""How results look in a notebook: cards of HTML, and figures by matplotlib."""
