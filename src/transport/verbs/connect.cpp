// From an open device to a pair that carries messages: addresses are swapped, both ends brought to ready-to-send, and
// the pair is warmed up, or made anew where it stays mute.
#include <cerrno>

#include "base/error.h"
#include "transport/verbs/gid.h"
#include "transport/verbs/setup_stream.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_queue_pair.h"
#include "transport/verbs/warm_up.h"

namespace coprime {
namespace {

constexpr int kAttempts = 4;  // a first one, and three with pairs made anew

// A VerbsEnd as it travels.
struct WireEnd {
  uint64_t max_message_bytes;
  uint32_t number, packet, mtu;
  uint32_t send_depth, receive_depth;
  uint16_t lid;
  uint8_t reliable, warm_up, tags;
  std::array<uint8_t, 16> gid;
};

WireEnd to_wire(const VerbsEnd& end, bool warm_up) {
  WireEnd wire = {};
  wire.max_message_bytes = end.max_message_bytes;
  wire.number = end.number;
  wire.packet = end.packet;
  wire.mtu = end.mtu;
  wire.send_depth = static_cast<uint32_t>(end.send_depth);
  wire.receive_depth = static_cast<uint32_t>(end.receive_depth);
  wire.lid = end.lid;
  wire.reliable = end.reliable;
  wire.warm_up = warm_up;
  wire.tags = end.tags;
  std::memcpy(wire.gid.data(), end.gid.raw, wire.gid.size());
  return wire;
}

VerbsEnd from_wire(const WireEnd& wire) {
  VerbsEnd end;
  end.max_message_bytes = wire.max_message_bytes;
  end.number = wire.number;
  end.packet = wire.packet;
  end.mtu = wire.mtu;
  end.send_depth = static_cast<int>(wire.send_depth);
  end.receive_depth = static_cast<int>(wire.receive_depth);
  end.lid = wire.lid;
  end.reliable = wire.reliable != 0;
  end.tags = wire.tags != 0;
  std::memcpy(end.gid.raw, wire.gid.data(), wire.gid.size());
  return end;
}

std::string summary_text(const VerbsDevice& device, const VerbsQueuePair& pair, const GidChoice& gid, int attempts) {
  const QueuePairLimits& limits = pair.limits();
  return fmt::format(
      "{} over {} port 1 ({}), MTU {}, GID {} ({}), depths {}/{}, messages up to {} bytes, {}", pair.name(),
      device.name(), port_state_text(device.port().state), pair.mtu(), gid.index, address_text(gid.gid.raw),
      limits.send_depth, limits.receive_depth, limits.max_message_bytes,
      attempts == 0 ? std::string("not warmed up") : fmt::format("warm-up done at attempt {}", attempts));
}

VerbsLink establish(const std::shared_ptr<VerbsDevice>& device, const VerbsOptions& options, SetupStream& stream,
                    int socket_fd) {
  const GidChoice gid =
      choose_gid(device->library(), device->context(), device->port(), options.gid_index, local_ip_address(socket_fd));
  WarmUp warm_up(options.gate_timeout_ms);
  std::string problem;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    std::unique_ptr<VerbsQueuePair> pair = VerbsQueuePair::create(device, options.type, options.max_message_bytes);
    pair->initialize();
    const VerbsEnd ours = pair->end(gid);
    const WireEnd theirs = stream.swap(SetupStep::kInfo, attempt, to_wire(ours, options.warm_up));
    if ((theirs.warm_up != 0) != options.warm_up) {
      fail(ErrorKind::kLink, "the warm-up is switched {} here and {} on the peer: give both ranks the same setting",
           options.warm_up ? "on" : "off", options.warm_up ? "off" : "on");
    }
    pair->connect(ours, from_wire(theirs), gid.index);
    stream.swap(SetupStep::kReady, attempt, uint8_t{0});
    if (options.warm_up) problem = warm_up.run(*pair, stream, attempt);
    if (problem.empty()) {
      std::string summary = summary_text(*device, *pair, gid, options.warm_up ? attempt : 0);
      return {std::move(pair), std::move(summary), {}};
    }
  }
  fail(ErrorKind::kLink,
       "the warm-up failed {} times with {} GID {} ({}), the last time because {}; check the cable, that both GIDs are "
       "of one subnet, and for RoCE that UDP port 4791 is open, or choose another link (tcp)",
       kAttempts, device->name(), gid.index, address_text(gid.gid.raw), problem);
}

}  // namespace

VerbsLink connect_verbs(std::shared_ptr<VerbsDevice> device, const VerbsOptions& options, int socket_fd, int rank,
                        int peer, int timeout_ms) {
  SetupStream stream(socket_fd, rank, peer, timeout_ms);
  try {
    VerbsLink link;
    try {
      link = establish(device, options, stream, socket_fd);
    } catch (const Error& error) {
      if (stream.broken()) throw;
      link.refusal = error.what();
    }
    link.refusal = stream.conclude(link.refusal);
    if (!link.refusal.empty()) link.pair.reset();
    return link;
  } catch (const Error& error) {
    fail(error.kind(), "verbs link to rank {}: {}", peer, error.what());
  }
}

}  // namespace coprime
