from ._finding import Source as Source, Sources as Sources, find_sources as find_sources
from ._jobs import FoundJobs as FoundJobs, read_folder as read_folder, read_jobs as read_jobs
from ._labels import FoundLabels as FoundLabels, find_labels as find_labels
