// tandem-verifier: runs the target model, which judges draft blocks and decodes plainly without
// one.
#include "services/verifier/verifier_server.h"
#include "services/worker/worker_main.h"
#ifdef TANDEM_HAS_CUDA
#include "services/verifier/cuda_judge.h"
#include "services/worker/load_on_gpu.h"
#endif

namespace {

#ifdef TANDEM_HAS_CUDA
constexpr auto kLoadTargetOnGpu = tandem::LoadOnGpu;
constexpr auto kMakeJudge = tandem::MakeCudaJudge;
#else
constexpr auto kLoadTargetOnGpu = nullptr;
constexpr auto kMakeJudge = nullptr;
#endif

}  // namespace

int main(int argc, char** argv) {
  return tandem::RunWorker(
      argc, argv,
      {.description = "Tandem's verifier worker runs the target model, judges draft tokens and "
                      "says what follows\n"
                      "them. A router talks to it. People talk to the router.",
       .judges = true,
       .load_on_gpu = kLoadTargetOnGpu,
       .start = [](const tandem::WorkerEndpoint& endpoint, tandem::ModelShelf& models,
                   const std::filesystem::path& ring_dir) {
         return tandem::VerifierServer::Start(endpoint, models.first(), ring_dir, kMakeJudge);
       }});
}
