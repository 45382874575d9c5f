#include "transport/ucx/ucx_queue_pair.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {
namespace {

constexpr uint64_t kIdlePolls = 256;  // between two looks at the socket
// The socket may end before the last message of a peer that has done its part and left is there.
constexpr int64_t kLastMessageUs = 50'000;
constexpr int64_t kClosingUs = 1'000'000;

// UCX tags: a kind, of a message its number (15 bits) and its epoch (16 bits), both from their lowest bits, and the
// request's tag.
constexpr uint64_t kWord = uint64_t{1} << 63, kMessage = 0, kKindMask = kWord;
constexpr int kNumberShift = 48, kEpochShift = 32;
constexpr uint64_t kNumberMask = 0x7fff, kEpochMask = 0xffff;

}  // namespace

UcxQueuePair::UcxQueuePair(std::shared_ptr<UcxContext> context)
    : context_(std::move(context)), ucx_(context_->library()) {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status = ucx_.worker_create(context_->get(), &params, &worker_);
  if (status != UCS_OK) fail(ErrorKind::kLink, "UCX makes no worker: {}", ucx_.status_string(status));
}

std::vector<std::byte> UcxQueuePair::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucx_.worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) fail(ErrorKind::kLink, "UCX gives no address: {}", ucx_.status_string(status));
  const auto* const first = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> result(first, first + bytes);
  ucx_.worker_release_address(worker_, address);
  return result;
}

void UcxQueuePair::connect(std::span<const std::byte> peers_address) {
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peers_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = on_error, .arg = this};
  const ucs_status_t status = ucx_.ep_create(worker_, &params, &endpoint_);
  if (status != UCS_OK) {
    fail(ErrorKind::kLink, "UCX finds no way to the peer: {}; check UCX_TLS and UCX_NET_DEVICES on both hosts",
         ucx_.status_string(status));
  }
}

// What UCX still holds of the caller's memory it gives back here.
UcxQueuePair::~UcxQueuePair() {
  for (uint64_t number = receives_.done; number < receives_.posted; ++number)
    give_up(receives_.at(number).handle, receives_.at(number));
  for (uint64_t number = sends_.done; number < sends_.posted; ++number)
    give_up(sends_.at(number).word, sends_.at(number));
  if (endpoint_ != nullptr) {
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* closing = ucx_.ep_close_nbx(endpoint_, &params);
    const auto all_over = [&] {
      bool over = is_over(closing);
      for (uint64_t number = sends_.done; number < sends_.posted; ++number)
        over = is_over(sends_.at(number).handle) && over;
      for (void*& word : words_) over = is_over(word) && over;
      return over;
    };
    for (const int64_t end_us = now_us() + kClosingUs; !all_over() && now_us() < end_us;) ucx_.worker_progress(worker_);
  }
  ucx_.worker_destroy(worker_);
}

UcxQueuePair::Slot& UcxQueuePair::Queue::post(const WorkRequest& request) {
  COPRIME_CHECK(posted - told < kMaxOutstanding, "{} requests are outstanding", posted - told);
  Slot& slot = at(posted++);
  slot = {.request = request};
  return slot;
}

int UcxQueuePair::Queue::tell(Completion::Kind kind, std::span<Completion> completions) {
  int count = 0;
  while (told < done && count < static_cast<int>(completions.size())) {
    const WorkRequest& request = at(told++).request;
    completions[static_cast<size_t>(count++)] = {
        .kind = kind, .id = request.id, .bytes = request.bytes, .tag = request.tag};
  }
  return count;
}

void UcxQueuePair::fail_pair(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

std::string UcxQueuePair::gone_text(ucs_status_t status) const {
  return fmt::format("closed the connection (UCX: {})", ucx_.status_string(status));
}

void UcxQueuePair::on_receive(void*, ucs_status_t status, const ucp_tag_recv_info_t* info, void* slot) {
  Slot& receive = *static_cast<Slot*>(slot);
  receive.arrived = true;
  receive.status = status;
  receive.bytes = info->length;
  receive.tag = info->sender_tag;
}

void UcxQueuePair::on_error(void* pair, ucp_ep_h, ucs_status_t status) {
  static_cast<UcxQueuePair*>(pair)->endpoint_error_ = status;
}

void UcxQueuePair::post_recv(std::span<const WorkRequest> chain) {
  for (const WorkRequest& request : chain) {
    if (!failure_.empty()) return;
    Slot& slot = receives_.post(request);
    slot.handle = receive({request.data, request.bytes}, kMessage, slot);
  }
}

void* UcxQueuePair::receive(std::span<std::byte> into, uint64_t kind, Slot& slot) {
  ucp_request_param_t params = {};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = on_receive;
  params.user_data = &slot;
  void* const handle = ucx_.tag_recv_nbx(worker_, into.data(), into.size(), kind, kKindMask, &params);
  if (!UCS_PTR_IS_ERR(handle)) return handle;
  fail_pair(fmt::format("is not reached: UCX takes no receive ({})", ucx_.status_string(UCS_PTR_STATUS(handle))));
  return nullptr;
}

void UcxQueuePair::give_up(void* handle, const Slot& slot) {
  if (handle == nullptr) return;
  if (!slot.arrived) ucx_.request_cancel(worker_, handle);
  ucx_.request_free(handle);
}

void UcxQueuePair::post_send(std::span<const WorkRequest> chain) {
  for (const WorkRequest& request : chain) {
    if (!failure_.empty() || endpoint_error_ != UCS_OK) return;
    Slot& slot = sends_.post(request);
    if (request.bytes > kHeldBytes) slot.word = receive({}, kWord, slot);
    slot.handle = send(request, kMessage | (sends_.posted & kNumberMask) << kNumberShift |
                                    (epoch_ & kEpochMask) << kEpochShift | request.tag);
  }
}

void* UcxQueuePair::send(const WorkRequest& request, uint64_t tag) {
  const ucp_request_param_t params = {};
  void* const handle = ucx_.tag_send_nbx(endpoint_, request.data, request.bytes, tag, &params);
  if (!UCS_PTR_IS_ERR(handle)) return handle;
  endpoint_error_ = UCS_PTR_STATUS(handle);
  return nullptr;
}

bool UcxQueuePair::is_over(void*& handle) {
  if (handle == nullptr) return true;
  if (UCS_PTR_IS_ERR(handle)) {
    handle = nullptr;
    return true;
  }
  const ucs_status_t status = ucx_.request_check_status(handle);
  if (status == UCS_INPROGRESS) return false;
  if (status != UCS_OK && endpoint_error_ == UCS_OK) endpoint_error_ = status;
  ucx_.request_free(std::exchange(handle, nullptr));
  return true;
}

void UcxQueuePair::move_sends() {
  while (sends_.done < sends_.posted && endpoint_error_ == UCS_OK) {
    Slot& slot = sends_.at(sends_.done);
    if (!is_over(slot.handle) || endpoint_error_ != UCS_OK) return;
    if (slot.word != nullptr) {
      if (slot.arrived) ucx_.request_free(std::exchange(slot.word, nullptr));
      return;  // until the next poll at least
    }
    ++sends_.done;
  }
}

void UcxQueuePair::move_receives() {
  while (receives_.done < receives_.posted) {
    Slot& slot = receives_.at(receives_.done);
    if (!slot.arrived) return;
    ucx_.request_free(std::exchange(slot.handle, nullptr));
    if (!accept(slot)) return;
    ++receives_.done;
    if (slot.bytes > kHeldBytes) words_.push_back(send({}, kWord));
  }
  std::erase_if(words_, [this](void*& word) { return is_over(word); });
}

bool UcxQueuePair::accept(Slot& slot) {
  const uint64_t number = slot.tag >> kNumberShift & kNumberMask, expected = (receives_.done + 1) & kNumberMask;
  if (slot.status == UCS_ERR_MESSAGE_TRUNCATED) {
    fail_pair(fmt::format("sent {} bytes where there is room for {}", slot.bytes, slot.request.bytes));
  } else if (slot.status != UCS_OK) {
    fail_pair(gone_text(slot.status));
  } else if (const uint64_t epoch = slot.tag >> kEpochShift & kEpochMask; epoch != (epoch_ & kEpochMask)) {
    fail_pair(fmt::format("sent a message of epoch {} in epoch {}", epoch, epoch_));
  } else if (number != expected) {
    fail_pair(fmt::format("sent message {} where message {} comes", number, expected));
  }
  slot.request.bytes = slot.bytes;
  slot.request.tag = static_cast<uint32_t>(slot.tag);
  return failure_.empty();
}

int UcxQueuePair::poll(std::span<Completion> completions) {
  if (!failure_.empty()) return 0;
  const unsigned events = ucx_.worker_progress(worker_);
  events_ += events;
  move_sends();
  move_receives();
  int count = sends_.tell(Completion::Kind::kSend, completions);
  count += receives_.tell(Completion::Kind::kReceive, completions.subspan(static_cast<size_t>(count)));
  // The peer is gone, but what it sent before is still delivered first.
  if (count == 0 && events == 0) look_for_peer();
  return count;
}

void UcxQueuePair::look_for_peer() {
  if (endpoint_error_ != UCS_OK) return fail_pair(gone_text(endpoint_error_));
  if (++idle_polls_ % kIdlePolls != 0 || !socket_) return;
  if (closed_us_ == 0 && is_closed(socket_.get())) closed_us_ = now_us();
  if (closed_us_ != 0 && now_us() - closed_us_ > kLastMessageUs) fail_pair("closed the connection");
}

}  // namespace coprime
