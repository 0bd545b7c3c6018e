"""Networks: the specification of each family and the modules it builds."""
