from ._job import RecommenderJob as RecommenderJob, recommender_job as recommender_job
from ._shape import RECOMMENDERS as RECOMMENDERS, RecommenderShape as RecommenderShape
