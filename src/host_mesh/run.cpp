#include "host_mesh/run.h"

namespace coprime::host_mesh {

std::vector<tl::HeadOutput> run(const tl::Places& places, const QueueSizes& sizes, const tl::LaunchSpec& spec,
                                const tl::Inputs* inputs, std::optional<uint64_t> seed) {
  return run(places, sizes, tl::make_launch(places, spec), inputs, seed);
}

std::vector<tl::HeadOutput> run(const tl::Places& places, const QueueSizes& sizes, const tl::Launch& launch,
                                const tl::Inputs* inputs, std::optional<uint64_t> seed) {
  tl::OutputCollector outputs;
  for (const tl::Program& program : launch.programs) {
    std::vector<std::unique_ptr<tl::RankMemory>> memories(program.parts.size());
    HostMesh mesh(places, sizes);
    for (size_t i = 0; i < program.parts.size(); ++i) {
      const tl::Part& part = program.parts[i];
      if (inputs) memories[i] = std::make_unique<tl::RankMemory>(*inputs, part.memory);
      mesh.launch(part.place, "kernel", memories[i].get(),
                  [&](tl::Tl<Worker>& tl) { return tl::start_kernel(tl, part.args); });
    }
    if (seed) {
      mesh.run_scheduled(*seed);
    } else {
      mesh.run_free();
    }
    if (!inputs) continue;
    for (size_t i = 0; i < program.parts.size(); ++i)
      outputs.add(*memories[i], mesh.worker(program.parts[i].place).notes());
  }
  return outputs.take();
}

}  // namespace coprime::host_mesh
