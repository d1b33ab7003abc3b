// Starts the page: the model, the drawn map and the interface around it.
