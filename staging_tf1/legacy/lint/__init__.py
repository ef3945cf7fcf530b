"""`staging-tf1 check`: finds in source code what makes a staging pipeline hang, leak or crawl."""
