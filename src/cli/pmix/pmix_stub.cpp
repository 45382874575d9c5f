// Stands for this folder in a build without PMIx's header (CMake chooses).
#include "cli/pmix/pmix_job.h"

namespace coprime {

std::unique_ptr<PmixJob> PmixJob::join(const Variable&, const std::string&) { return nullptr; }

}  // namespace coprime
