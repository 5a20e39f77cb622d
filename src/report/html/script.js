const said = document.getElementById("said");
for (const mark of document.querySelectorAll(".mark"))
  for (const event of ["focus", "pointerenter"]) mark.addEventListener(event, () => (said.textContent = mark.getAttribute("aria-label")));
addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const marks = [...document.querySelectorAll(".mark")];
  const at = marks.indexOf(document.activeElement);
  if (step && at >= 0 && marks[at + step]) (event.preventDefault(), marks[at + step].focus());
});
