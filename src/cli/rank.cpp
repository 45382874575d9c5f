// coprime rank: serves one rank of a world on another host. And the processes that a launcher started beside the
// front's.

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/invitation.h"
#include "engine/join.h"
#include "tools/link_member.h"

namespace coprime {
namespace {

int exit_code_of(const RankEnding& ending) { return ending.why == RankEnding::Why::kDone ? 0 : exit_code(ending.kind); }

}  // namespace

int run_rank_command(const RankSettings& settings) {
  // A rank is stopped by a signal: it owns nothing that must be put in order, and its front sees it leave.
  for (int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { ::_exit(0); });
  JoinOptions options{
      .front = {.endpoint = parse_endpoint(settings.join)},
      .key = settings.key(),
      .rank = settings.rank,
      .model = settings.model,
      .threads = settings.threads,
      .verbs = settings.verbs,
      .again = !settings.once,
      .report = [](const std::string& line) { std::fprintf(stderr, "coprime rank: %s\n", line.c_str()); },
      .measure = serve_link_trials};
  return exit_code_of(join_world(options));
}

int run_launched_rank(const RanksSettings& settings, const LaunchedProcess& process) {
  JoinOptions options{.front = settings.launched_meeting(process),
                      .key = settings.key(),
                      .rank = process.rank,
                      .verbs = settings.verbs,
                      .again = false,
                      .timeout_ms = settings.join_timeout * 1000,
                      .measure = serve_link_trials};
  if (settings.pmix) {
    const std::string text = settings.pmix->take(settings.join_timeout);
    if (text.empty()) return exit_code(ErrorKind::kLink);  // the front ended before its world began
    const Invitation invitation = invitation_from_text(text);
    options.front = {.endpoint = reachable(invitation)};
    options.key = secret_key_from_hex(invitation.key, "the front's invitation");
  }
  return exit_code_of(join_world(options));  // what went wrong is the front's to say
}

}  // namespace coprime
