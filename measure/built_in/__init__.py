"""Files that come with the installed commands, for those who name none of their own."""
