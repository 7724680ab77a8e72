/* The extension module is a plain shared library: its functions are called through ctypes with
 * numpy buffers (see layerdag/runtime/native.py), so that no Python object is touched in a hot loop. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Array kernels of layerdag, called through ctypes.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
