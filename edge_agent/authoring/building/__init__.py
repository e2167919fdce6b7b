"""From a project to a bundle: its files, its bill of materials, its digest."""
