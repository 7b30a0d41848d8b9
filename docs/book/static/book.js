// Light or dark as the reader's system is, from the first moment; without JavaScript the page is light.
const page = document.documentElement.dataset;
page.mode ||= "auto";
page.theme ||= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

// A result of the search shows a part of its page where pages can be fetched; a browser refuses that to files.
if (typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:";
}

// The theme takes the focus away from a button that was pressed. Who pressed it with a key goes on from there.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button && event.detail === 0 && document.activeElement === document.body) button.focus();
});
