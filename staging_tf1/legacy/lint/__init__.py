"""`staging-tf1 check`: finds code that makes a staging pipeline hang, leak memory or slow down."""
