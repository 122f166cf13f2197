// tandem-verifier: the target model. Judges draft blocks, and decodes plainly without one.
#include "services/verifier/verifier_server.h"
#include "services/worker/worker_main.h"
#ifdef TANDEM_HAS_CUDA
#include "services/worker/cuda_backend.h"
#endif

int main(int argc, char** argv) {
  return tandem::RunWorker(
      argc, argv,
      {.name = "tandem-verifier",
       .description =
           "Tandem's verifier worker: runs the target model, judges draft tokens and says "
           "what follows them.\nA router talks to it; people talk to the router.",
       .has_ring = true,
#ifdef TANDEM_HAS_CUDA
       .load_on_gpu = tandem::LoadOnGpu,
#endif
       .start = [](const tandem::Address& address, const tandem::WorkerModel& model,
                   const std::filesystem::path& ring_dir) {
         return tandem::VerifierServer::Start(address, model, ring_dir);
       }});
}
