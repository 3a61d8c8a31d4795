// What a report shows: the JSON head, and a typed array for each column, straight from the decompressed bytes.

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function unpacked(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const Kind = head.bytes === 8 ? Float64Array : Float32Array;
  let offset = 4 + length;
  const next = () => {
    const values = new Kind(buffer, offset, head.networks);
    offset += head.networks * head.bytes;
    return values;
  };
  head.step = next();
  for (const column of head.columns) column.values = next();
  head.column = new Map(head.columns.map((column) => [column.name, column]));
  return head;
}

const known = (column) => {
  const found = [];
  column.values.forEach((value, i) => { if (!Number.isNaN(value)) found.push(i); });
  return found;
};

// Networks that have both a value of x and one of y.
function both(x, y) {
  const found = [];
  for (let i = 0; i < x.length; i++) if (x[i] - x[i] === 0 && y[i] - y[i] === 0) found.push(i);
  return found;
}

// Those that no other one beats in both, the cheapest first.
function paretoFront(places, x, xHigher, y, yHigher) {
  const cost = (i) => (xHigher ? -x[i] : x[i]);
  const merit = (i) => (yHigher ? y[i] : -y[i]);
  const order = places.slice().sort((a, b) => cost(a) - cost(b) || merit(b) - merit(a));
  const found = [];
  let best = -Infinity;
  for (const i of order) {
    if (merit(i) > best) { found.push(i); best = merit(i); }
  }
  return found;
}

// The networks that were better than all before them; networks are in the order of their first evaluation.
function improvements(places, column) {
  const found = [];
  let best = -Infinity;
  for (const i of places) {
    const merit = column.higher ? column.values[i] : -column.values[i];
    if (merit > best) { found.push(i); best = merit; }
  }
  return found;
}

// Whether positive values span so much that most of them would lie on one another; of many, some thousand are asked.
function isWide(values, places) {
  if (!places.length || places.some((i) => values[i] <= 0)) return false;
  const every = Math.ceil(places.length / 4000);
  const sorted = Float64Array.from({ length: Math.ceil(places.length / every) }, (_, k) => values[places[k * every]]).sort();
  const at = (share) => sorted[Math.floor(share * (sorted.length - 1))];
  return at(0.9) > 100 * at(0.1);
}
