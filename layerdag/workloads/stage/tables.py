"""The operators of each block, forward and backward, with the sharding that each expects.

The facts are those of STAGE's spreadsheets (module3, MIT licence) in a notation of our own::

    name | operator | operand | operand | -> result | after others | gradient of weight

An operand is the name of a tensor, and its dimensions where they differ from those in which it was
made; a difference in sharding is a collective. ``-> dims @ reduced`` states a result that does not
follow from the operands; a degree among the reduced dimensions makes it a partial sum.

Operators: ``T dims`` comes from another block, ``W dims`` a weight, ``I`` nothing is computed,
``M letters`` einsum, ``A`` sum, ``E n`` elementwise, n operations for each element, ``E2 n`` the
same of two tensors, ``B axis factor`` broadcast or reduction, ``SLICE axis size``, ``R`` reshape,
``C n`` an operator of n operations (CUSTOM).

Symbols: B micro-batch, S sequence, D width, H heads, K key and value heads, F feed-forward width, V
vocabulary, X experts, R experts of a token; dp, tp, cp, ep the degrees. ``Q`` is the sequence
dimension of residual tensors: ``S/cp/tp`` with sequence parallelism, else ``S/cp``.
"""

NORM = """
x | T B/dp, Q, D
y | E 5 | x
dy | T B/dp, Q, D
dx | E 5 | dy
"""

RESIDUAL = """
x1 | T B/dp, Q, D
x2 | T B/dp, Q, D
y | A | x1 | x2
dy | T B/dp, Q, D
dx1 | I | dy
dx2 | I | dy
"""

ATTENTION = """
x | T B/dp, Q, D
wqkv | W D, D/H, (H+2*K)/tp
qkv | M bsm,mnh->bsnh | x: B/dp, S/cp, D | wqkv
q | SLICE 3 H/tp | qkv
k | SLICE 3 K/tp | qkv
v | SLICE 3 K/tp | qkv
attn | T B/dp, S/cp, D/H, H/tp
wo | W D/H, H/tp, D
o1 | M bsmh,mhn->bsn | attn | wo
o | I | o1: B/dp, Q, D
do | T B/dp, Q, D
do1 | I | do: B/dp, S/cp, D
dattn | M bsn,mhn->bsmh | do1 | wo
dwo | M bsn,bsmh->mhn | do1 | attn | gradient of wo
dv | T B/dp, S/cp, D/H, K/tp
dk | T B/dp, S/cp, D/H, K/tp
dq | T B/dp, S/cp, D/H, H/tp
dkv | SLICE 3 2*K/tp | dv | dk
dqkv | SLICE 3 (2*K+H)/tp | dkv | dq
dwqkv | M bsnh,bsm->mnh | dqkv | x: B/dp, S/cp, D | gradient of wqkv
dx1 | M bsnh,mnh->bsm | dqkv | wqkv
dx | I | dx1: B/dp, Q, D
"""

_KERNEL = """
q | T B/dp, S/cp, D/H, H/tp
k | T B/dp, S/cp, D/H, K/tp
v | T B/dp, S/cp, D/H, K/tp
k1 | I | k: B/dp, S, D/H, K/tp
v1 | I | v: B/dp, S, D/H, K/tp
qkv | C 3*B/dp*S/cp*D/H*H/tp | q | -> B/dp, S/cp, D/H, H/tp | after k1 v1
dqkv | T B/dp, S/cp, D/H, H/tp
dq | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S/cp, D/H, H/tp
"""

KERNEL = (
    _KERNEL
    + """
dk | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S, D/H, H/tp @ 1/cp
dv | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S, D/H, H/tp @ 1/cp
"""
)

GROUPED_KERNEL = (
    _KERNEL
    + """
dk1 | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S, D/H, H/tp @ 1/cp
dv1 | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S, D/H, H/tp @ 1/cp
dk | SLICE 3 K/tp | dk1: B/dp, S/cp, D/H, H/tp
dv | SLICE 3 K/tp | dv1: B/dp, S/cp, D/H, H/tp
"""
)

FEED_FORWARD = """
x0 | T B/dp, Q, D
wgate | W D, F/tp
wdown | W F/tp, D
x00 | I | x0: B/dp, S/cp, D
xgate | M bsm,mn->bsn | x00 | wgate
xdown1 | M bsm,mn->bsn | xgate | wdown
xdown | I | xdown1: B/dp, Q, F
dxdown | T B/dp, Q, D
dxdown2 | I | dxdown: B/dp, S/cp, D
dwdown | M bsn,bsm->mn | dxdown2 | xgate | gradient of wdown
dxgate | M bsn,mn->bsm | dxdown2 | wdown
x01 | I | x0: B/dp, S/cp, D
dwgate | M bsn,bsm->mn | dxgate | x01 | gradient of wgate
dx000 | M bsn,mn->bsm | dxgate | wgate
dx0 | I | dx000: B/dp, Q, D
"""

GATED_FEED_FORWARD = """
x0 | T B/dp, Q, D
wup | W D, F/tp
wgate | W D, F/tp
wdown | W F/tp, D
x00 | I | x0: B/dp, S/cp, D
xup | M bsm,mn->bsn | x00 | wup
xgate | M bsm,mn->bsn | x00 | wgate
xupgate | M bsm,bsm->bsm | xup | xgate
xdown1 | M bsm,mn->bsn | xupgate | wdown
xdown | I | xdown1: B/dp, Q, F
dxdown | T B/dp, Q, D
dxdown2 | I | dxdown: B/dp, S/cp, D
dwdown | M bsn,bsm->mn | dxdown2 | xupgate | gradient of wdown
dxupgate | M bsn,mn->bsm | dxdown2 | wdown
dxup | M bsm,bsm->bsm | dxupgate | xgate
dxgate | M bsm,bsm->bsm | dxupgate | xup
x01 | I | x0: B/dp, S/cp, D
dwup | M bsn,bsm->mn | dxup | x01 | gradient of wup
dwgate | M bsn,bsm->mn | dxgate | x01 | gradient of wgate
dx00 | M bsn,mn->bsm | dxup | wup
dx01 | M bsn,mn->bsm | dxgate | wgate
dx000 | A | dx00: B/dp, S/cp, D @ 1/tp | dx01: B/dp, S/cp, D @ 1/tp
dx0 | I | dx000: B/dp, Q, D
"""

EMBEDDING = """
x | T B/dp, Q, In
w | W In, Out
y | M bsm,mn->bsn | x | w
dy | T B/dp, Q, Out
dw | M bsn,bsm->mn | dy | x | gradient of w
dx | M bsn,mn->bsm | dy | w
"""

SPLIT_EMBEDDING = """
x | T B/dp, S/cp, In/tp
w | W In/tp, Out
y | M bsm,mn->bsn | x | w
dy | T B/dp, S/cp, Out
dw | M bsn,bsm->mn | dy | x | gradient of w
dx | M bsn,mn->bsm | dy | w
"""

LOSS = """
y | T B/dp, Q, D
loss | E 5 | y
dy | E 5 | loss
"""

ROUTER = """
x | T B/dp, S/cp/tp, D
wrouter | W D/ep, R
yrouter | M bsm,mn->bsn | x | wrouter: D, R
yrouter2 | R | yrouter | -> B/dp, S/cp*R/tp, 1
x1 | B 1 R | x: B/dp, S/cp/tp, D/ep
xrouted | I | x1: B/dp, S/cp*R/(tp*ep), D
yrouted | T B/dp, S/cp*R/(tp*ep), D
y1 | I | yrouted: B/dp, S/cp*R/tp, D/ep
yrouter3 | SLICE 2 D/ep | yrouter2
y2 | E2 1 | y1 | yrouter3
y | B 1 1/R | y2
dy | T B/dp, S/cp/tp, D/ep
dy2 | B 1 R | dy
dy1 | E2 1 | dy2 | yrouter3
dyrouter3 | E2 1 | dy2 | y1
dyrouter2 | SLICE 2 1 | dyrouter3
dyrouted | I | dy1: B/dp, S/cp*R/(tp*ep), D
dyrouter | R | dyrouter2 | -> B/dp, S/cp/tp, R
dwrouter | M bsn,bsm->mn | dyrouter | x: B/dp, S/cp/tp, D/ep | gradient of wrouter
dx01 | M bsn,mn->bsm | dyrouter | wrouter
dxrouted | T B/dp, S/cp*R/(tp*ep), D
dx1 | I | dxrouted: B/dp, S/cp*R/tp, D/ep
dx02 | B 1 1/R | dx1
dx | A | dx01 | dx02
"""

DISPATCH = """
x | T B/dp, S/cp*R/(tp*ep), D
x_expert | SLICE 1 S/cp*R/(X*tp*ep) | x
dx_expert | T B/dp, S/cp*R/(X*tp*ep), D
dx | SLICE 1 S/cp*R/(tp*ep) | dx_expert
y_expert | T B/dp, S/cp*R/(X*tp*ep), D
y | SLICE 1 S/cp*R/(tp*ep) | y_expert
dy | T B/dp, S/cp*R/(tp*ep), D
dy_expert | SLICE 1 S/cp*R/(X*tp*ep) | dy
"""
