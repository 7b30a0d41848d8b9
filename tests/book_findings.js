// What a page breaks: a list of findings, each "rule: where". See book_checks.py.
// within  a selector: only what lies in such a part of the page
(within) => {
  const found = [];
  const say = (rule, node) => {
    if (!within || node.closest(within)) found.push(`${rule}: ${node.outerHTML.replace(/\s+/g, ' ').slice(0, 120)}`);
  };
  const every = (selector) => [...document.querySelectorAll(selector)];
  const shown = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && node.getClientRects().length > 0 && !node.closest('[aria-hidden="true"]');
  const named = (node) => [
    node.getAttribute('aria-label'), node.title, node.innerText, node.placeholder, node.value,
    ...[...node.querySelectorAll('img')].map((image) => image.alt),
    ...[...(node.labels || [])].map((label) => label.innerText),
    ...(node.getAttribute('aria-labelledby') || '').split(' ').map((id) => document.getElementById(id)?.innerText),
  ].some((name) => name && name.trim());

  if (!document.documentElement.lang) say('page without language', document.documentElement);
  if (!document.title.trim()) say('page without title', document.head);
  if (every('main, [role=main]').filter(shown).length !== 1) say('not one main part', document.body);
  if (!every('nav, [role=navigation]').length) say('no navigation', document.body);
  every('img:not([alt])').forEach((node) => say('picture without a text', node));
  every('svg[role=img]:not([aria-label])').filter((node) => shown(node) && !node.closest('a, button')).forEach((node) => say('picture without a text', node));
  every('iframe:not([title])').forEach((node) => say('frame without a title', node));
  every('a[href], button, input, select, textarea, summary').filter(shown)
    .forEach((node) => { if (!named(node)) say('control without a name', node); });
  every('[tabindex]').forEach((node) => { if (node.tabIndex > 0) say('changes the order of tabs', node); });
  every('th').filter((node) => !shown(node) && node.innerText && shown(node.closest('table'))).forEach((node) => say('hidden heading of a table', node));

  const ids = new Set();
  every('[id]').forEach((node) => { if (ids.has(node.id)) say('name used twice', node); ids.add(node.id); });

  const levels = every('h1, h2, h3, h4, h5, h6').filter(shown).map((node) => [Number(node.tagName[1]), node]);
  if (levels.filter(([level]) => level === 1).length !== 1) say('not one main heading', document.body);
  levels.forEach(([level, node], place) => {
    if (place && level > levels[place - 1][0] + 1) say('a level of headings is skipped', node);
  });

  every('*').filter((node) => /auto|scroll/.test(getComputedStyle(node).overflowX + getComputedStyle(node).overflowY))
    .filter((node) => shown(node) && (node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1))
    .filter((node) => node.tabIndex < 0 && !node.querySelector('a[href], button, input, summary, [tabindex="0"]'))
    .filter((node) => node !== document.documentElement && node !== document.body)
    .forEach((node) => say('can be scrolled by mouse only', node));

  const brush = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const known = {};
  const read = (colour) => {  // any colour of CSS as [red, green, blue, alpha], 0 to 1
    if (!known[colour]) {
      brush.clearRect(0, 0, 1, 1); brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
      known[colour] = [...brush.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
    }
    return known[colour];
  };
  const over = (top, below) => [0, 1, 2].map((part) => top[part] * top[3] + below[part] * (1 - top[3]));
  const ground = (node) => {
    const above = [];
    for (let at = node; at; at = at.parentElement) above.unshift(read(getComputedStyle(at).backgroundColor));
    return above.reduce((below, top) => over(top, below), [1, 1, 1]);
  };
  const light = (colour) => colour.slice(0, 3)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !shown(node) || node.closest('script, style, noscript, :disabled')) continue;
    const style = getComputedStyle(node), size = parseFloat(style.fontSize), below = ground(node);
    const [a, b] = [light(over(read(style.color), below)), light(below)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) say(`contrast ${contrast.toFixed(2)}`, node);
  }
  return found;
}
