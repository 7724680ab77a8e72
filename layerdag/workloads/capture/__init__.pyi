from ._capture import capture_model as capture_model, capture_step as capture_step
from ._captured import CapturedStep as CapturedStep
from ._program import load_program as load_program
from ._recorder import Recorder as Recorder
from ._settings import CapturePlan as CapturePlan, CaptureStep as CaptureStep
from ._transformer import Transformer as Transformer
