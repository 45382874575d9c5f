// coprime key: makes a key file for the hosts of a world.

#include "cli/commands.h"
#include "transport/secret_key.h"

namespace coprime {

void run_key(const KeySettings& settings) { write_key_file(settings.file, make_secret_key()); }

}  // namespace coprime
