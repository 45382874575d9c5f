// Queue pairs over UCX, which picks its own way between two ranks (InfiniBand, RoCE, shared memory, TCP) as its UCX_*
// variables say. libucp is loaded when it is asked for, so that a host without it runs the same program; a build
// without its header has ucx_stub.cpp in place of this folder, whose context never opens.
//
// Messages wait at the receiver until there is a receive, and carry a tag: a pair is a stream for gates. A send is
// complete only when it has left, so that a rank which polls no more owes its peer nothing. There is nothing to sleep
// on: UCX moves bytes when it is polled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "transport/queue_pair.h"

namespace coprime {

class UcxContext;

// Error(kLink): no library, or none that works here. Shared by the pairs of a rank.
std::shared_ptr<UcxContext> open_ucx(const std::string& library = "libucp.so.0");

// Both ranks call it with the two ends of one stream socket, over which they swap addresses, and which the pair keeps:
// a peer whose end is closed is gone. It returns when messages have gone both ways. Error(kLink), naming the peer,
// where that takes longer than timeout_ms.
std::unique_ptr<QueuePair> connect_ucx(std::shared_ptr<UcxContext> context, UniqueFd socket, uint32_t epoch, int rank,
                                       int peer, int timeout_ms);

}  // namespace coprime
