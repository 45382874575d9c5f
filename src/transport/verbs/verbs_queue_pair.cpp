#include "transport/verbs/verbs_queue_pair.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr int kPollBatch = 16;
constexpr size_t kChain = DS4_TP_RDMA_BULK_SLOTS;

const char* type_text(bool reliable) { return reliable ? "RC" : "UC"; }

std::string mtu_text(uint32_t mtu) {
  const int bytes = mtu_bytes(mtu);
  return bytes == 0 ? fmt::format("unknown ({})", mtu) : fmt::format("{}", bytes);
}

}  // namespace

void VerbsQueuePair::Queue::post(const WorkRequest& request, bool signaled) {
  COPRIME_CHECK(posted - done < slots.size(), "{} requests are outstanding", posted - done);
  at(posted++) = {request.id, request.bytes, signaled};
}

std::unique_ptr<VerbsQueuePair> VerbsQueuePair::create(std::shared_ptr<VerbsDevice> device, VerbsType type,
                                                       size_t max_message_bytes) {
  std::string refusals;
  for (const bool reliable : {true, false}) {
    if (type == (reliable ? VerbsType::kUc : VerbsType::kRc)) continue;
    std::unique_ptr<VerbsQueuePair> pair(new VerbsQueuePair(device, reliable));
    if (!pair->try_create(kDepth, kDepth, refusals) &&
        !pair->try_create(kSmallSendDepth, kSmallReceiveDepth, refusals)) {
      continue;
    }
    const size_t port_bytes = device->port().max_msg_sz;
    if (port_bytes == 0) {
      fail(ErrorKind::kLink, "{} carries no message (its port's largest is 0 bytes): choose another device",
           device->name());
    }
    const size_t wanted = max_message_bytes != 0 ? max_message_bytes : reliable ? port_bytes : DS4_TP_RDMA_MAX_MSG;
    pair->limits_.max_message_bytes = std::min(wanted, port_bytes);
    return pair;
  }
  fail(ErrorKind::kLink, "{} makes no queue pair: {}; check its limits, and what other programs hold of it",
       device->name(), refusals);
}

bool VerbsQueuePair::try_create(int send_depth, int receive_depth, std::string& refusals) {
  const VerbsLibrary& library = device_->library();
  const auto refused = [&](const char* call) {
    refusals += fmt::format("{}{} ({} {}/{}): {}", refusals.empty() ? "" : ", ", call, type_text(reliable_), send_depth,
                            receive_depth, errno_text(errno));
    return false;
  };
  completions_ = library.create_cq(device_->context(), std::max(kMinCompletions, send_depth + receive_depth));
  if (completions_ == nullptr) return refused("create_cq");
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = attributes.recv_cq = completions_;
  attributes.qp_type = reliable_ ? IBV_QPT_RC : IBV_QPT_UC;
  attributes.cap.max_send_wr = static_cast<uint32_t>(send_depth);
  attributes.cap.max_recv_wr = static_cast<uint32_t>(receive_depth);
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  pair_ = library.create_qp(device_->domain(), &attributes);
  if (pair_ == nullptr) {
    refused("create_qp");
    library.destroy_cq(std::exchange(completions_, nullptr));
    return false;
  }
  // The device wrote what it granted. Whatever that is, all completions must find room in the queue.
  const auto granted = [&](uint32_t depth) { return static_cast<int>(std::min<uint32_t>(depth, kMaxGrantedDepth)); };
  int sends = granted(attributes.cap.max_send_wr), receives = granted(attributes.cap.max_recv_wr);
  const int room = completions_->cqe;
  if (sends + receives > room) {
    sends = std::min(sends, std::max(room / 2, room - receives));
    receives = std::min(receives, room - sends);
  }
  if (sends < 1 || receives < 1) {
    fail(ErrorKind::kLink, "{} granted {} sends, {} receives and {} completions: choose another device",
         device_->name(), attributes.cap.max_send_wr, attributes.cap.max_recv_wr, room);
  }
  set_limits(sends, receives, 0);
  return true;
}

void VerbsQueuePair::set_limits(int send_depth, int receive_depth, size_t max_message_bytes) {
  limits_.send_depth = send_depth;
  limits_.receive_depth = receive_depth;
  limits_.max_message_bytes = max_message_bytes;
  limits_.loses_unposted = !reliable_;
  sends_.slots.resize(static_cast<size_t>(send_depth));
  receives_.slots.resize(static_cast<size_t>(receive_depth));
}

VerbsQueuePair::~VerbsQueuePair() {
  if (pair_ != nullptr) device_->library().destroy_qp(pair_);
  if (completions_ != nullptr) device_->library().destroy_cq(completions_);
}

void VerbsQueuePair::modify(ibv_qp_attr& attributes, int mask, const char* step, const char* advice) {
  const int error = device_->library().modify_qp(pair_, &attributes, mask);
  if (error != 0) {
    fail(ErrorKind::kLink, "{} refused to bring its {} pair to {}: {}; {}", device_->name(), type_text(reliable_), step,
         errno_text(error), advice);
  }
}

void VerbsQueuePair::initialize() {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = VerbsDevice::kPort;
  attributes.qp_access_flags = 0;  // no remote reads or writes: messages only
  modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT",
         "check that its port 1 is up");
}

VerbsEnd VerbsQueuePair::end(const GidChoice& gid) {
  const ibv_port_attr& port = device_->port();
  if (!reliable_ && port.active_mtu < IBV_MTU_1024) {
    fail(ErrorKind::kLink, "{} runs with an MTU of {} and UC needs 1024: raise its interface's MTU", device_->name(),
         mtu_text(port.active_mtu));
  }
  return {.number = pair_->qp_num,
          .packet = std::random_device()() & 0xffffff,
          .mtu = reliable_ ? static_cast<uint32_t>(port.active_mtu) : static_cast<uint32_t>(IBV_MTU_1024),
          .lid = port.lid,
          .reliable = reliable_,
          .gid = gid.gid,
          .max_message_bytes = limits_.max_message_bytes,
          .send_depth = limits_.send_depth,
          .receive_depth = limits_.receive_depth,
          .tags = device_->has_immediates()};
}

void VerbsQueuePair::connect(const VerbsEnd& ours, const VerbsEnd& peers, uint8_t gid_index) {
  if (peers.reliable != reliable_) {
    fail(ErrorKind::kLink, "the peer's device makes {} pairs and ours {}: ask for UC on both ranks",
         type_text(peers.reliable), type_text(reliable_));
  }
  if (mtu_bytes(peers.mtu) == 0 || (!reliable_ && peers.mtu != ours.mtu)) {
    fail(ErrorKind::kLink, "the peer's MTU is {} and ours {}: give both interfaces the same", mtu_text(peers.mtu),
         mtu_text(ours.mtu));
  }
  if (peers.max_message_bytes == 0 || peers.send_depth < 1 || peers.receive_depth < 1) {
    fail(ErrorKind::kLink, "the peer offers messages of {} bytes and depths of {}/{}: run the same version on both",
         peers.max_message_bytes, peers.send_depth, peers.receive_depth);
  }
  mtu_ = std::min(ours.mtu, peers.mtu);
  set_limits(std::min(ours.send_depth, peers.send_depth), std::min(ours.receive_depth, peers.receive_depth),
             std::min(ours.max_message_bytes, peers.max_message_bytes));
  limits_.carries_tags = ours.tags && peers.tags;

  ibv_qp_attr receiving = {};
  receiving.qp_state = IBV_QPS_RTR;
  receiving.path_mtu = static_cast<ibv_mtu>(mtu_);
  receiving.dest_qp_num = peers.number;
  receiving.rq_psn = peers.packet;
  receiving.ah_attr.is_global = 1;
  receiving.ah_attr.grh.dgid = peers.gid;
  receiving.ah_attr.grh.sgid_index = gid_index;
  receiving.ah_attr.grh.hop_limit = 1;
  receiving.ah_attr.dlid = peers.lid;
  receiving.ah_attr.port_num = VerbsDevice::kPort;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (reliable_) {
    receiving.max_dest_rd_atomic = 1;
    receiving.min_rnr_timer = 12;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  modify(receiving, mask, "ready-to-receive",
         "check that both GIDs are of one subnet, and that the peer's host answers");

  ibv_qp_attr sending = {};
  sending.qp_state = IBV_QPS_RTS;
  sending.sq_psn = ours.packet;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (reliable_) {
    sending.timeout = 14;
    sending.retry_cnt = 3;
    // 7 is for ever. ds4 retries three times, and a peer that arrives a few milliseconds late at its first gate then
    // ends the pair for good; how long to wait for a peer is the gate's deadline to say.
    sending.rnr_retry = 7;
    sending.max_rd_atomic = 1;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  modify(sending, mask, "ready-to-send", "check the device's driver");
}

void VerbsQueuePair::fail_pair(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

bool VerbsQueuePair::register_memory(std::span<std::byte> memory) {
  std::shared_ptr<const VerbsMemory> held = device_->register_memory(memory);
  if (!held) return false;
  memory_.push_back(std::move(held));
  return true;
}

void VerbsQueuePair::release_memory(std::span<std::byte> memory) {
  std::erase_if(memory_, [&](const auto& held) {
    return held->bytes.data() == memory.data() && held->bytes.size() == memory.size();
  });
}

ibv_sge VerbsQueuePair::element(const WorkRequest& request) const {
  COPRIME_CHECK(request.bytes <= limits_.max_message_bytes, "{} bytes in a message of at most {}", request.bytes,
                limits_.max_message_bytes);
  if (request.bytes == 0) return {};
  for (const auto& held : memory_) {
    const std::span<std::byte> bytes = held->bytes;
    if (request.data >= bytes.data() && request.data + request.bytes <= bytes.data() + bytes.size()) {
      return {reinterpret_cast<uintptr_t>(request.data), static_cast<uint32_t>(request.bytes), held->region->lkey};
    }
  }
  COPRIME_CHECK(false, "{} bytes at {} lie in no registered memory", request.bytes,
                static_cast<const void*>(request.data));
  return {};
}

void VerbsQueuePair::post_recv(std::span<const WorkRequest> chain) {
  while (!chain.empty() && failure_.empty()) {
    std::array<ibv_recv_wr, kChain> requests;
    std::array<ibv_sge, kChain> elements;
    const size_t count = std::min(chain.size(), kChain);
    for (size_t i = 0; i < count; ++i) {
      elements[i] = element(chain[i]);
      // An element of length 0 means 2 GiB to some devices: an empty message has no element.
      requests[i] = {.wr_id = kReceiveBit | receives_.posted,
                     .next = i + 1 < count ? &requests[i + 1] : nullptr,
                     .sg_list = &elements[i],
                     .num_sge = chain[i].bytes == 0 ? 0 : 1};
      receives_.post(chain[i], true);
    }
    ibv_recv_wr* refused = nullptr;
    const int error = device_->context()->ops.post_recv(pair_, requests.data(), &refused);
    if (error != 0) fail_pair(fmt::format("is cut off: post_recv was refused ({})", errno_text(error)));
    chain = chain.subspan(count);
  }
}

void VerbsQueuePair::post_send(std::span<const WorkRequest> chain) {
  while (!chain.empty() && failure_.empty()) {
    std::array<ibv_send_wr, kChain> requests;
    std::array<ibv_sge, kChain> elements;
    const size_t count = std::min(chain.size(), kChain);
    for (size_t i = 0; i < count; ++i) {
      elements[i] = element(chain[i]);
      ibv_send_wr& request = requests[i];
      request = {};
      request.wr_id = sends_.posted;
      request.next = i + 1 < count ? &requests[i + 1] : nullptr;
      request.sg_list = &elements[i];
      request.num_sge = chain[i].bytes == 0 ? 0 : 1;
      request.opcode = limits_.carries_tags ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
      if (limits_.carries_tags) request.imm_data = ::htonl(chain[i].tag);
      request.send_flags = chain[i].signaled ? IBV_SEND_SIGNALED : 0;
      sends_.post(chain[i], chain[i].signaled);
    }
    ibv_send_wr* refused = nullptr;
    const int error = device_->context()->ops.post_send(pair_, requests.data(), &refused);
    if (error != 0) fail_pair(fmt::format("is cut off: post_send was refused ({})", errno_text(error)));
    chain = chain.subspan(count);
  }
}

int VerbsQueuePair::poll(std::span<Completion> completions) {
  size_t count = 0;
  while (failure_.empty() && count < completions.size()) {
    std::array<ibv_wc, kPollBatch> works;
    const int wanted = static_cast<int>(std::min<size_t>(completions.size() - count, kPollBatch));
    const int got = device_->context()->ops.poll_cq(completions_, wanted, works.data());
    if (got < 0 || got > wanted) {
      fail_pair(fmt::format("is cut off: poll_cq gave {} of {} completions", got, wanted));
      break;
    }
    for (int i = 0; i < got && failure_.empty(); ++i) {
      if (retire(works[static_cast<size_t>(i)], completions[count])) ++count;
    }
    if (got < wanted) break;
  }
  return static_cast<int>(count);
}

// Requests of one queue end in the order of posting. Sends that asked for no completion are done with the next that
// did.
bool VerbsQueuePair::retire(const ibv_wc& work, Completion& completion) {
  const bool is_receive = (work.wr_id & kReceiveBit) != 0;
  const uint64_t number = work.wr_id & ~kReceiveBit;
  Queue& queue = is_receive ? receives_ : sends_;
  const char* const what = is_receive ? "receive" : "send";
  if (number >= queue.posted) {
    fail_pair(fmt::format("is cut off: the device completed {} {}, which was never posted", what, number));
    return false;
  }
  if (number < queue.done) {
    fail_pair(fmt::format("is cut off: the device completed {} {} twice", what, number));
    return false;
  }
  for (; queue.done < number; ++queue.done) {
    if (!queue.at(queue.done).signaled) continue;
    fail_pair(fmt::format("is cut off: the device completed {} {} before {} {}", what, number, what, queue.done));
    return false;
  }
  const Posted& posted = queue.at(queue.done++);
  completion = {.kind = is_receive ? Completion::Kind::kReceive : Completion::Kind::kSend,
                .status = static_cast<uint32_t>(work.status),
                .id = posted.id,
                .bytes = is_receive && work.status == IBV_WC_SUCCESS ? work.byte_len : posted.bytes};
  if (work.status != IBV_WC_SUCCESS) {
    fail_pair(fmt::format("is cut off: {} {} ended with status {} ({}, vendor's code {:#x})", what, number,
                          static_cast<int>(work.status), device_->library().status_text(work.status), work.vendor_err));
    return true;
  }
  if (((work.opcode & IBV_WC_RECV) != 0) != is_receive) {
    fail_pair(
        fmt::format("is cut off: the device completed {} {} as a {}", what, number, is_receive ? "send" : "receive"));
    return false;
  }
  if (is_receive && limits_.carries_tags) {
    if ((work.wc_flags & IBV_WC_WITH_IMM) == 0) {
      fail_pair(fmt::format("is cut off: the device completed {} {} without its immediate data", what, number));
      return false;
    }
    completion.tag = ::ntohl(work.imm_data);
  }
  if (is_receive && work.byte_len > posted.bytes) {
    fail_pair(fmt::format("sent {} bytes where there is room for {}", work.byte_len, posted.bytes));
    return false;
  }
  return posted.signaled;
}

}  // namespace coprime
