NAME = "model"
