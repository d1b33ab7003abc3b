"""Publishers: each makes one external system match the published topology. They only read it."""
