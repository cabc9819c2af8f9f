"""How strong the unit tests are: whether they notice a small fault that is put into the product on purpose."""
