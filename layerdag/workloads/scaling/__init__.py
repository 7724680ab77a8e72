"""A recorded job on other ranks or with other layers."""
