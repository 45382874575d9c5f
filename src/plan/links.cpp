#include "plan/links.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace coprime {
namespace {

const std::array<LinkNumbers, 9>& table() {
  static const std::array<LinkNumbers, 9> kLinks = {{
      {"1g", "1 Gb/s Ethernet", 60, 0.117, "line rate less TCP's headers; half of a usual 100 to 150 us round trip"},
      {"10g", "10 Gb/s Ethernet", 25, 1.17, "line rate less TCP's headers; usual round trips of 40 to 60 us"},
      {"25g", "25 Gb/s Ethernet", 20, 2.9, "line rate less TCP's headers; usual round trips of 30 to 50 us"},
      {"100g", "100 Gb/s Ethernet, TCP", 18, 9, "one TCP stream of one core; usual round trips of 30 to 40 us"},
      {"100g-rdma", "100 Gb/s, RDMA", 6, 12,
       "paired floor of 6 us between two hosts with RoCE (wkljohn/ds4-strix-halo-tp-odinlink); line rate"},
      {"pcie5x4", "PCIe 5.0 x4", 3.5, 14, "80 KiB in 11 us and flags there and back in 1.7 to 2.9 us (R9700 cards)"},
      {"pcie5x8", "PCIe 5.0 x8", 3.5, 27.6, "27.6 to 27.7 GB/s pushed at 8 to 80 MiB (R9700 cards)"},
      {"nvlink", "NVLink 4", 3.5, 340, "3.6 us for 8 KiB and 345 GB/s pushed between two H200s"},
      {"shm", "shared memory of one host", 1.5, 6, "16 KiB between two cores of one socket in 3 to 5 us"},
  }};
  return kLinks;
}

}  // namespace

std::span<const LinkNumbers> typical_links() { return table(); }

const LinkNumbers* find_link(std::string_view name) {
  const auto found = std::ranges::find(table(), name, &LinkNumbers::name);
  return found == table().end() ? nullptr : &*found;
}

double gate_us(const LinkNumbers& link, int64_t ranks, double bytes) {
  if (ranks < 2) return 0;
  return link.latency_us + static_cast<double>(ranks - 1) * bytes / (link.gb_s * 1e3);
}

LinkNumbers fit_link(std::span<const GatePoint> points, int64_t ranks) {
  COPRIME_CHECK(!points.empty() && ranks >= 2, "{} points of {} ranks", points.size(), ranks);
  const GatePoint &first = points.front(), &last = points.back();
  LinkNumbers link;
  const double bytes = static_cast<double>(last.bytes - first.bytes), us = std::max(last.us - first.us, 1e-3);
  // One size tells nothing of the bandwidth: all of its time counts as if it were moving bytes.
  link.gb_s =
      static_cast<double>(ranks - 1) * (bytes > 0 ? bytes / us : static_cast<double>(last.bytes) / last.us) / 1e3;
  link.latency_us =
      bytes > 0
          ? std::max(first.us - static_cast<double>(ranks - 1) * static_cast<double>(first.bytes) / (link.gb_s * 1e3),
                     0.0)
          : 0;
  return link;
}

double interpolate_us(std::span<const GatePoint> points, double bytes) {
  COPRIME_CHECK(!points.empty(), "no points");
  const auto above =
      std::ranges::find_if(points, [&](const GatePoint& p) { return static_cast<double>(p.bytes) >= bytes; });
  if (above == points.begin()) return above->us;
  if (above == points.end()) {
    const GatePoint& last = points.back();
    if (points.size() == 1) return last.us * bytes / static_cast<double>(last.bytes);
    const GatePoint& before = points[points.size() - 2];
    const double slope = std::max(last.us - before.us, 0.0) / static_cast<double>(last.bytes - before.bytes);
    return last.us + slope * (bytes - static_cast<double>(last.bytes));
  }
  const GatePoint& below = *(above - 1);
  const double share = (bytes - static_cast<double>(below.bytes)) / static_cast<double>(above->bytes - below.bytes);
  return below.us + share * (above->us - below.us);
}

}  // namespace coprime
