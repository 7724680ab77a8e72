from ._scrub import public_operators as public_operators, scrub as scrub
