from ._fit import fit_laws as fit_laws
from ._laws import NO_LAWS as NO_LAWS, Laws as Laws, PowerLaw as PowerLaw
from ._relations import Relation as Relation, find_relations as find_relations
