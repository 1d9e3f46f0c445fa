"""What runs say, for people: views (numbers ready to draw) and their renderers: a page, figures, plain text."""
