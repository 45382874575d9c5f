// RDMA devices that exist only in a test: hosts whose verbs library is a table of lambdas, and whose contexts carry the
// ops of a fabric that moves bytes within the process. It is strict where hardware is forgiving: a pair receives only
// from the pair that it was connected to with the same type, MTU, packet number and GID, states go RESET, INIT, RTR,
// RTS with the attributes that each needs, nothing is posted before RTS, keys and bounds of memory are checked, a
// message without a receive is lost on UC and waits on RC. All objects are counted, so that tests see what is leaked.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/verbs/gid.h"
#include "transport/verbs/verbs_library.h"

namespace coprime {

ibv_gid_entry gid_entry(const IpAddress& address, uint32_t type = IBV_GID_TYPE_ROCE_V2);
IpAddress ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d);

struct FakeDevice {
  std::string name = "fake0";
  ibv_port_state state = IBV_PORT_ACTIVE;
  ibv_mtu mtu = IBV_MTU_4096;
  uint32_t max_message_bytes = 1u << 30;
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  std::vector<std::optional<ibv_gid_entry>> gids;
  bool has_rc = true, has_uc = true;
  uint32_t max_depth = 1u << 15;  // more is refused
  uint32_t granted_factor = 1;    // depths are granted as this many times what was asked for
};

// What poll_cq does to the next completion that it tells.
enum class FakeTamper {
  kNone,
  kDuplicate,
  kWrongLength,
  kBadStatus,
  kUnknownId,
  kSkip,
  kWrongOpcode,
  kTooMany,
  kNoImmediate
};

struct FakeFabric;

struct FakeHost {
  explicit FakeHost(std::shared_ptr<FakeFabric> to, std::vector<FakeDevice> with = {FakeDevice{}})
      : fabric(std::move(to)), devices(std::move(with)) {}
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  VerbsLibrary library();  // the host outlives it

  std::shared_ptr<FakeFabric> fabric;
  std::vector<FakeDevice> devices;

  // Faults. Calls fail by their table's name, modify_qp by "modify INIT", "modify RTR", "modify RTS", and posting and
  // polling by their ops' names.
  std::map<std::string, int> failing;  // the errno
  int mute_pairs = 0;                  // so many new pairs lose all that they send
  int lost_sends = 0;                  // so many sends are lost first
  int late_sends = 0;                  // so many sends each arrive only when the next is posted
  bool corrupt = false;                // a byte of every message
  bool completes_unsignaled = false;
  FakeTamper tamper = FakeTamper::kNone;

  // Seen.
  int objects = 0;        // open and not yet closed
  int registrations = 0;  // calls of reg_mr
  int pairs_created = 0;
  int longest_chain = 0;
  bool overflowed = false;  // a completion queue had no room
  ibv_qp_attr rtr = {}, rts = {};
  ibv_qp_init_attr created = {};
};

struct FakePair;

struct FakeFabric {
  std::mutex mutex;
  std::map<uint32_t, FakePair*> pairs;
  std::map<const FakeHost*, std::map<uint32_t, ibv_mr*>> keys;  // of registered memory
  uint32_t next_number = 17;
};

}  // namespace coprime
