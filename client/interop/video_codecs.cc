// libnvcuvid.so.1 as a client has it: a library that cannot be loaded, since this symbol is nowhere
// to be found. What the error of dlopen then says is the symbol's name.
//
// A client machine may have NVIDIA's library without a GPU. That library does not know that its
// GPU is far away: nvJPEG, which decodes by it where it can be loaded, then waits forever. Where it
// cannot be loaded, nvJPEG decodes with kernels.
extern "C" void fargpu_does_not_forward_video_codecs();

[[gnu::used]] void (*const refusal)() = &fargpu_does_not_forward_video_codecs;
