"""Entry points for libraries that run models; each module is loaded only by users of that library."""
