# docker build -t epochzero . && docker run --rm -v "$PWD/runs:/epochzero/runs" epochzero
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /epochzero
COPY . .
RUN make .venv/installed
CMD ["make", "search"]
