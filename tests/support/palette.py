"""Small pictures for the docs: a PNG with a palette, a fourth of the size of a screenshot.

Chromium decodes, NumPy chooses the colours, and the file is written as PNG (ISO/IEC 15948) has it.
"""

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
from playwright.async_api import Browser

_MOST = 256
_STEP = 32
_NEAR = 4096  # colours compared at a time
_DECODE = """
async (png) => {
  const bytes = Uint8Array.from(atob(png), (c) => c.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  let text = "";
  for (let i = 0; i < data.length; i += 0x8000) text += String.fromCharCode(...data.subarray(i, i + 0x8000));
  return [image.width, image.height, btoa(text)];
}
"""


async def write_small(browser: Browser, source: Path, target: Path) -> None:
    """The same picture in 256 colours."""
    page = await browser.new_page()
    try:
        width, height, data = await page.evaluate(_DECODE, base64.b64encode(source.read_bytes()).decode())
    finally:
        await page.close()
    pixels = np.frombuffer(base64.b64decode(data), np.uint8).reshape(height * width, 4)[:, :3]
    codes = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    known, index, shown = np.unique(codes, return_inverse=True, return_counts=True)
    palette = _palette(_rgb(known), shown)
    chosen, _ = _nearest(_rgb(known), palette)
    target.write_bytes(_png(width, height, palette, chosen[index].astype(np.uint8)))


def _rgb(codes: np.ndarray) -> np.ndarray:
    return np.stack([codes >> 16 & 255, codes >> 8 & 255, codes & 255], axis=1).astype(np.int32)


def _palette(colours: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Those that are shown most, then again and again those without which most would be wrong."""
    chosen = np.argsort(shown)[::-1][:_STEP]
    while len(chosen) < min(_MOST, len(colours)):
        _, error = _nearest(colours, colours[chosen])
        worst = np.argsort(error * shown)[::-1][: min(_STEP, _MOST - len(chosen))]
        chosen = np.concatenate([chosen, worst])
    return colours[chosen]


def _nearest(colours: np.ndarray, palette: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index in the palette for each colour, and the square of how far away that is."""
    index, error = [], []
    for first in range(0, len(colours), _NEAR):
        part = colours[first : first + _NEAR, None, :] - palette[None, :, :]
        squares = (part * part).sum(axis=2)
        index.append(squares.argmin(axis=1))
        error.append(squares.min(axis=1))
    return np.concatenate(index), np.concatenate(error)


def _png(width: int, height: int, palette: np.ndarray, indices: np.ndarray) -> bytes:
    rows = np.zeros((height, width + 1), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = indices.reshape(height, width)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"PLTE", palette.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
