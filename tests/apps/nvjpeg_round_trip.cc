// nvJPEG: encodes an image and decodes it again. Build:
// nvcc -o nvjpeg_round_trip nvjpeg_round_trip.cc -lnvjpeg
#include <nvjpeg.h>

#include <cmath>

#include "library.h"

int main() {
  const int width = 320, height = 240;
  const size_t plane = size_t{1} * width * height;
  std::vector<unsigned char> image(3 * plane);  // three planes, smooth
  for (size_t i = 0; i < image.size(); ++i) {
    const size_t x = i % width, y = i / width % height;
    image[i] = static_cast<unsigned char>((x + 2 * y + 40 * (i / plane)) / 4);
  }
  unsigned char* const memory = to_device(image);
  nvjpegImage_t planes{};
  for (int c = 0; c < 3; ++c) {
    planes.channel[c] = memory + c * plane;
    planes.pitch[c] = width;
  }
  nvjpegHandle_t handle;
  nvjpegJpegState_t decoder;
  nvjpegEncoderState_t encoder;
  nvjpegEncoderParams_t parameters;
  CHECK(nvjpegCreateSimple(&handle));
  CHECK(nvjpegJpegStateCreate(handle, &decoder));
  CHECK(nvjpegEncoderStateCreate(handle, &encoder, nullptr));
  CHECK(nvjpegEncoderParamsCreate(handle, &parameters, nullptr));
  CHECK(nvjpegEncoderParamsSetQuality(parameters, 95, nullptr));
  CHECK(nvjpegEncoderParamsSetSamplingFactors(parameters, NVJPEG_CSS_444, nullptr));
  CHECK(nvjpegEncodeImage(handle, encoder, parameters, &planes, NVJPEG_INPUT_RGB, width, height,
                          nullptr));
  size_t bytes = 0;
  CHECK(nvjpegEncodeRetrieveBitstream(handle, encoder, nullptr, &bytes, nullptr));
  std::vector<unsigned char> stream(bytes);
  CHECK(nvjpegEncodeRetrieveBitstream(handle, encoder, stream.data(), &bytes, nullptr));
  CHECK(cudaMemset(memory, 0, image.size()));
  const double seconds = timed([&] {
    CHECK(nvjpegDecode(handle, decoder, stream.data(), bytes, NVJPEG_OUTPUT_RGB, &planes, nullptr));
  });
  const std::vector<unsigned char> got = to_host(memory, image.size());
  double difference = 0, sum = 0;
  for (size_t i = 0; i < image.size(); ++i) {
    difference += std::fabs(static_cast<double>(got[i]) - image[i]);
    sum += got[i];
  }
  CHECK(nvjpegEncoderParamsDestroy(parameters));
  CHECK(nvjpegEncoderStateDestroy(encoder));
  CHECK(nvjpegJpegStateDestroy(decoder));
  CHECK(nvjpegDestroy(handle));
  const double mean = difference / static_cast<double>(image.size());
  return report(mean < 3, {sum, static_cast<double>(bytes)}, seconds);
}
