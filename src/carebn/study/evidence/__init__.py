"""What run directories and measurements say, sorted into the cells of a study; and statistics over them."""
