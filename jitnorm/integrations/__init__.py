"""Ways into jitnorm for libraries that run models; each module is loaded by those who use that library alone."""
