"""Views as people see them: text in a terminal, one page, Markdown, figures. Nothing is computed here."""
