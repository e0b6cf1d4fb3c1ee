"""ffmpeg as Debian builds it: it loads libcuda.so.1 by itself, wants every symbol that a driver
has, and its filters are PTX."""

import pathlib
import shutil
import tempfile
import unittest

import fargpu_testing as testing

FFMPEG = shutil.which("ffmpeg")
WIDTH, HEIGHT, FRAMES = 64, 48, 3
INPUT = f"testsrc2=size={WIDTH}x{HEIGHT}:rate=25,format=nv12"


def ffmpeg(filters, *output):
    """The command of a short synthetic film through `filters`."""
    frames = ("-frames:v", FRAMES)
    source = ("-f", "lavfi", "-i", INPUT)
    common = (FFMPEG, "-hide_banner", "-nostdin", "-loglevel", "verbose")
    gpu = ("-init_hw_device", "cuda=gpu", "-filter_hw_device", "gpu") if "cuda" in filters else ()
    return (*common, *gpu, *source, "-vf", filters, *frames, *output)


def pictures(data, width, height):
    """The frames of raw NV12: (luma rows, rows of chroma pairs) of each."""
    size = width * height * 3 // 2
    for start in range(0, len(data), size):
        rows = [data[start + i * width :][:width] for i in range(height * 3 // 2)]
        yield rows[:height], [list(zip(r[::2], r[1::2], strict=True)) for r in rows[height:]]


def doubled(rows):
    """Each sample twice as wide and twice as high: the nearest neighbour."""
    return [[value for value in row for _ in (0, 1)] for row in rows for _ in (0, 1)]


@unittest.skipIf(FFMPEG is None, "ffmpeg is not installed (scripts/setup --tests)")
class Ffmpeg(unittest.TestCase):
    def film(self, daemon, filters):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder) / "film.nv12"
            command = ffmpeg(filters, "-f", "rawvideo", "-pix_fmt", "nv12", target)
            done = daemon.run(*command) if daemon else testing.run(command)
            self.assertEqual(done.returncode, 0, done.stderr)
            return target.read_bytes()

    def test_pictures_are_right(self):
        original = self.film(None, "null")
        self.assertEqual(len(original), FRAMES * WIDTH * HEIGHT * 3 // 2)
        with testing.Daemon() as daemon:
            there_and_back = self.film(daemon, "hwupload_cuda,hwdownload,format=nv12")
            self.assertEqual(there_and_back, original)
            scale = f"scale_cuda={2 * WIDTH}:{2 * HEIGHT}:interp_algo=nearest"
            scaled = self.film(daemon, f"hwupload_cuda,{scale},hwdownload,format=nv12")
        expected = list(pictures(original, WIDTH, HEIGHT))
        found = list(pictures(scaled, 2 * WIDTH, 2 * HEIGHT))
        self.assertEqual(len(found), len(expected))
        for (luma, chroma), (wide_luma, wide_chroma) in zip(expected, found, strict=True):
            self.assertEqual([list(row) for row in wide_luma], doubled(luma))
            self.assertEqual(wide_chroma, doubled(chroma))

    def test_codecs_of_the_gpu_are_named(self):
        """Encoders and decoders drive the GPU past the CUDA driver: their libraries are missing."""
        with testing.Daemon() as daemon:
            done = daemon.run(*ffmpeg("null", "-c:v", "h264_nvenc", "-f", "null", "-"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("libnvidia-encode.so.1", done.stderr)


if __name__ == "__main__":
    testing.main()
