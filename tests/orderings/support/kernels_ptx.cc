// kernels.cu as PTX text, so that every driver compiles it itself. ORDERINGS_PTX: its path.
extern "C" {
extern const char kernels_ptx[];
}
asm(".section .rodata\n"
    ".global kernels_ptx\n"
    "kernels_ptx:\n"
    ".incbin \"" ORDERINGS_PTX
    "\"\n"
    ".byte 0\n"
    ".previous\n");
