// One rank, as a process or a thread. What it serves is the front's choice, by its first message: an engine, or the
// measuring of links (tools/link_member.h). It never prints; what goes wrong travels to the front as a message.
//
// In an engine it tells what it holds, joins the gates, loads its shard, and runs the steps that the front sends until
// the front says stop or is gone. A step that fails ends neither the rank nor the world: the rank reports it and waits
// for new links.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/links.h"
#include "model/weights.h"
#include "transport/channel.h"
#include "transport/progress_page.h"
#include "transport/secret_key.h"

namespace coprime {

// What tests may put between the checkpoint and the device.
struct RankHooks {
  SinkFilter filter;
};

class FrontLine;
struct RankPlacement;
// Serves a front that measures links; `start` is its first message. Ends by what FrontLine throws, or by its own Error.
using MeasuringService = std::function<void(FrontLine& front, const Message& start, std::shared_ptr<const ProgressPage>,
                                            const RankPlacement&)>;

// Where a rank runs, and what its own operator decides.
struct RankPlacement {
  std::string front_host = "127.0.0.1";            // by which it reaches the front's host
  std::string own_host = "127.0.0.1";              // by which it reached the front: peers find it there
  std::optional<SecretKey> key;                    // none: the front gives one
  std::filesystem::path model;                     // empty: the front's
  int threads = 0;                                 // 0: the front's
  VerbsChoice verbs;                               // none made: the front's
  std::function<void(const std::string&)> report;  // told of each step that fails, at once; may be empty
  RankHooks hooks;
  MeasuringService
      measure;  // lies above this folder, and is given by who starts the rank; empty: such fronts are refused
};

// How a rank's service ended.
struct RankEnding {
  enum class Why : uint8_t {
    kDone,       // the front needs it no more
    kDismissed,  // the front said why it cannot go on
    kFrontGone,
    kFailed,  // this rank's own failure; the front was told
  };
  Why why = Why::kDone;
  ErrorKind kind = ErrorKind::kLink;
  std::string reason;
};

// Runs until the control channel ends. Throws nothing.
RankEnding run_rank(Channel& control, std::shared_ptr<const ProgressPage> progress, const RankPlacement& placement);

}  // namespace coprime
