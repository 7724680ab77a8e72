from ._card import card as card
from ._files import (
    SURROGATE as SURROGATE,
    SavedSurrogate as SavedSurrogate,
    further_folder as further_folder,
    load_further as load_further,
    load_notes as load_notes,
    load_surrogate as load_surrogate,
    save_surrogate as save_surrogate,
)
