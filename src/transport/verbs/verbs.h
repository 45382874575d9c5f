// Queue pairs over RDMA devices. libibverbs is loaded when it is asked for, so that a host without it runs the same
// program; a build without its header has verbs_stub.cpp in place of this folder, whose device never opens.
//
// A device is opened once a rank and shared by the pairs to all peers. A pair is RC where the device has RC, else UC:
// a UC pair loses a message that meets no receive, an RC pair waits until one is posted. The message cap and the
// depths in the pair's limits are the smaller of both ends, so that both cut and window alike.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "transport/queue_pair.h"

namespace coprime {

enum class VerbsType { kProbe, kRc, kUc };  // kProbe: RC where the device has it, else UC

struct VerbsOptions {
  std::string library = "libibverbs.so.1";
  std::string device;                  // empty: the first whose port 1 is active; a named one may have any state
  int gid_index = -1;                  // -1: chosen, see gid.h
  VerbsType type = VerbsType::kProbe;  // both ends must come to the same
  size_t max_message_bytes = 0;        // 0: the port's on RC, 16384 on UC; never above the port's
  bool warm_up = true;                 // both ends must say the same
  int gate_timeout_ms = 750;           // how long RC's warm-up message may take
};

class VerbsDevice;

// Error(kLink): no library, no device, no active port, or a device that refuses, each by its own message.
std::shared_ptr<VerbsDevice> open_verbs_device(const VerbsOptions& options);

struct VerbsLink {
  std::unique_ptr<QueuePair> pair;  // null: there is a refusal
  std::string summary;  // for the line that says how the ranks are linked: device, type, MTU, GID, depths, attempts
  std::string refusal;  // why there is no pair; both ranks have one then
};

// Both ranks call it with the two ends of one stream socket, which is lent, and which carries nothing of this any more
// afterwards. It returns when messages of 16 KiB have gone both ways, or when both ranks have agreed that they do not.
// timeout_ms bounds each wait for the peer. Error(kLink), naming the peer: the socket has failed, or the peer is
// silent.
VerbsLink connect_verbs(std::shared_ptr<VerbsDevice> device, const VerbsOptions& options, int socket_fd, int rank,
                        int peer, int timeout_ms);

}  // namespace coprime
