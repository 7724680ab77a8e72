from .models import checkpoint_path as checkpoint_path
